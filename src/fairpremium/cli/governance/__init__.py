"""Commands for those who answer for prices: monitoring, and documents about a model."""

__all__: list[str] = []
