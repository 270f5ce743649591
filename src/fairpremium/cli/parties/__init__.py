"""The commands of the three parties: the third party's processes, the operator, collectors, insurers and auditors."""

__all__: list[str] = []
