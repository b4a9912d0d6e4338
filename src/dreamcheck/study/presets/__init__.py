"""Study protocols that ship, as TOML."""
