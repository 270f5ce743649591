-- The service's role and database. Run once by psql as the owner of the server. The role owns its database, because the
-- service makes and migrates its tables, and has no other right.
\set ON_ERROR_STOP on
\set password `cat /run/secrets/database.password`
SELECT :'password' = '' AS is_empty \gset
\if :is_empty
DO $$ BEGIN RAISE EXCEPTION 'Got no password in /run/secrets/database.password, but expected one. Write the file first.'; END $$;
\endif
CREATE ROLE fairpremium LOGIN PASSWORD :'password' NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION CONNECTION LIMIT 200;
CREATE DATABASE fairpremium OWNER fairpremium TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C';
REVOKE ALL ON DATABASE fairpremium FROM PUBLIC;
