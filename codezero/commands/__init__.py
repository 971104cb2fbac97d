"""Commands: their arguments and their work. Heavy libraries load inside functions, once the settings are checked."""
