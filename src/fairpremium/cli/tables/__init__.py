"""Tables as people have them: CSV with any separator, decimal mark and encoding, Parquet, Excel."""

from fairpremium.cli.tables._format import TableFormat
from fairpremium.cli.tables._tables import (
    as_labels,
    as_text,
    check_output,
    find_told,
    note_formulas,
    read_table,
    require_columns,
    require_file,
    require_filled,
    require_numbers,
    write_table,
)

__all__ = [
    "TableFormat",
    "as_labels",
    "as_text",
    "check_output",
    "find_told",
    "note_formulas",
    "read_table",
    "require_columns",
    "require_file",
    "require_filled",
    "require_numbers",
    "write_table",
]
