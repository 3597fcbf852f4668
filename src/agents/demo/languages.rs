//! The languages that the demo can say hello in: values of a property that are looked up.

use ahp_types::commands::SessionConfigValueItem;

/// Each with its tag, its name, and what is said in it.
const LANGUAGES: [(&str, &str, &str); 24] = [
    ("cs", "Czech", "Dobrý den"),
    ("da", "Danish", "Hej"),
    ("de", "German", "Guten Tag"),
    ("el", "Greek", "Γεια σας"),
    ("en", "English", "Hello"),
    ("es", "Spanish", "Hola"),
    ("et", "Estonian", "Tere"),
    ("fi", "Finnish", "Hei"),
    ("fr", "French", "Bonjour"),
    ("ga", "Irish", "Dia dhuit"),
    ("hi", "Hindi", "नमस्ते"),
    ("hu", "Hungarian", "Jó napot"),
    ("it", "Italian", "Buongiorno"),
    ("ja", "Japanese", "こんにちは"),
    ("ko", "Korean", "안녕하세요"),
    ("la", "Latin", "Salve"),
    ("nl", "Dutch", "Hallo"),
    ("no", "Norwegian", "God dag"),
    ("pl", "Polish", "Dzień dobry"),
    ("pt", "Portuguese", "Olá"),
    ("sv", "Swedish", "God dag"),
    ("sw", "Swahili", "Habari"),
    ("tr", "Turkish", "Merhaba"),
    ("uk", "Ukrainian", "Добрий день"),
];

/// The tags that show before anybody searches.
pub(super) const SEEDS: [&str; 3] = ["en", "de", "fr"];

/// The languages whose tag or name begins with `query`.
pub(super) fn fitting(query: &str) -> Vec<SessionConfigValueItem> {
    let query = query.trim().to_lowercase();
    let fits =
        |(tag, name, _): &&(&str, &str, &str)| tag.starts_with(&query) || name.to_lowercase().starts_with(&query);
    let item = |(tag, name, hello): &(&str, &str, &str)| SessionConfigValueItem {
        value: (*tag).to_owned(),
        label: (*name).to_owned(),
        description: Some((*hello).to_owned()),
    };
    LANGUAGES.iter().filter(fits).map(item).collect()
}

/// What is said in a language; nothing in one that is not known.
pub(super) fn hello(tag: &str) -> Option<&'static str> {
    LANGUAGES.iter().find(|(known, _, _)| *known == tag).map(|(_, _, hello)| *hello)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn languages_are_found_by_tag_and_by_name() {
        let tags = |query| fitting(query).into_iter().map(|item| item.value).collect::<Vec<_>>();
        assert_eq!(tags("").len(), LANGUAGES.len());
        assert_eq!((tags("fr"), tags("GER"), tags("xx")), (vec!["fr".to_owned()], vec!["de".to_owned()], vec![]));
        assert!(SEEDS.iter().all(|tag| hello(tag).is_some()) && hello("xx").is_none());
    }
}
