"""Commands that compare prices: the spectrum of fair prices, and less discriminatory alternatives."""

__all__: list[str] = []
