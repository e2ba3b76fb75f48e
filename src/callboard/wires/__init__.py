"""The providers' formats: each wire is a codec with a client half and a server half."""
