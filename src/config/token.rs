//! The deployment token, which is no key and is never printed.

use std::path::Path;

use super::{ConfigFault, Environment, Loaded};

/// The token that is configured: the file of the flag or of the environment, else `SCROLLBACK_TOKEN`, else the file of
/// the configuration file.
///
/// # Errors
/// [`ConfigFault`] for a file that cannot be read or is empty.
pub fn token(loaded: &Loaded, environment: &Environment) -> Result<Option<String>, ConfigFault> {
    let from = loaded.source_of("token_file");
    let is_of_file = from.starts_with("file ");
    if let Some(token) = environment.token().filter(|_| is_of_file || loaded.config.token_file.is_none()) {
        return Ok(Some(token.to_owned()));
    }
    let Some(path) = &loaded.config.token_file else { return Ok(None) };
    let fault = |problem| ConfigFault::Named { from: format!("token_file ({from})"), problem };
    token_in(path).map(Some).map_err(fault)
}

/// The token in the file at `path`, without the white space around it.
///
/// # Errors
/// What is wrong with the file, with its path.
pub fn token_in(path: &Path) -> Result<String, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    match text.trim() {
        "" => Err(format!("{}: holds no token", path.display())),
        token => Ok(token.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::load;
    use super::*;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    #[test]
    fn a_token_file_of_a_flag_beats_the_variable_which_beats_one_of_the_file() {
        let (of_flag, of_file) = (file(" flag\n"), file("file"));
        let config = file(&format!("token_file = \"{}\"", of_file.path().display()));
        let environment = Environment::of(&[("SCROLLBACK_TOKEN", "variable")]);
        let flags = [("token_file", of_flag.path().display().to_string())];
        let of = |environment: &Environment, flags: &[(&'static str, String)]| {
            token(&load(Some(config.path()), environment, flags).unwrap(), environment).unwrap().unwrap()
        };
        assert_eq!(of(&environment, &flags), "flag");
        assert_eq!(of(&environment, &[]), "variable");
        assert_eq!(of(&Environment::default(), &[]), "file");
    }

    #[test]
    fn an_empty_or_missing_token_file_is_an_error() {
        assert!(token_in(file(" \n").path()).unwrap_err().ends_with("holds no token"));
        assert!(token_in(Path::new("/no/such/file")).unwrap_err().starts_with("/no/such/file: "));
    }
}
