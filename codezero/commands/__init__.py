"""What each command takes and does. Whatever is heavy is imported inside a function, once the settings are checked."""
