-- What is laid over the configuration file for everybody. Reads config_override_key.
SELECT section, option, value FROM pepsi.config_override WHERE scope = 'global' ORDER BY lower(section), lower(option)
