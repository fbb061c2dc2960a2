//! Asks the user on the terminal which model to use if no model is configured. If the user does not answer, no model
//! is chosen.

use super::Terminal;
use super::text::{harmless, shell_word};
use agent_config::ModelChooser;
use agent_config::settings::ModelOffer;
use async_trait::async_trait;
use std::fmt::Write;
use std::io::{IsTerminal, stdin};

/// Maximum number of models to offer.
const MAX_OFFERS: usize = 9;

#[async_trait]
impl ModelChooser for Terminal {
    fn can_ask(&self) -> bool {
        self.is_interactive() && stdin().is_terminal()
    }

    async fn choose(&self, offers: Vec<ModelOffer>) -> Option<ModelOffer> {
        let question = question(&offers)?;
        self.note(harmless(&question).trim_end());
        let answer = tokio::task::spawn_blocking(answer).await.unwrap_or_default();
        let chosen = chosen(&offers, &answer).cloned();
        match &chosen {
            Some(offer) => self.note(harmless(&offer.next_time())),
            None => self.note("the built-in `offline` is used; --model offline skips this question"),
        }
        chosen
    }

    fn uses_only_model(&self, model: &str, base_url: &str) {
        self.note(format!("the model is `{model}`, the only one at {base_url}"));
    }
}

/// Reads a line from the terminal. The line is empty at the end of input and after an error.
fn answer() -> String {
    let mut line = String::new();
    stdin().read_line(&mut line).map(|_| line).unwrap_or_default()
}

/// Formats the question to the user. Returns None if there are no models to offer.
fn question(offers: &[ModelOffer]) -> Option<String> {
    // Names with special characters are quoted for the shell.
    let line = |offer: &ModelOffer| format!("{} at {} ({})", shell_word(&offer.name), offer.base_url, offer.reason);
    let begin = "no model is configured, so the built-in `offline` would answer (it is not a language model)";
    match offers {
        [] => None,
        [one] => Some(format!("{begin}\nuse {}? [y/N] ", line(one))),
        many => {
            let mut question = format!("{begin}; available models:\n");
            for (index, offer) in many.iter().take(MAX_OFFERS).enumerate() {
                let _ = writeln!(question, "  {}  {}", index + 1, line(offer));
            }
            if many.len() > MAX_OFFERS {
                let _ =
                    writeln!(question, "  and {} more; name one with --model PROVIDER/MODEL", many.len() - MAX_OFFERS);
            }
            let _ = write!(question, "use which model? [1-{}, or Enter for none] ", many.len().min(MAX_OFFERS));
            Some(question)
        }
    }
}

/// Returns the offer that the answer selects. Returns None if the answer does not select exactly one offer.
fn chosen<'o>(offers: &'o [ModelOffer], answer: &str) -> Option<&'o ModelOffer> {
    let answer = answer.trim().to_lowercase();
    match offers {
        [one] => ["y", "yes"].contains(&answer.as_str()).then_some(one),
        many => many.iter().take(MAX_OFFERS).nth(answer.parse::<usize>().ok()?.checked_sub(1)?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_models::LocalServer;

    fn server(models: &[&str]) -> LocalServer {
        let models = models.iter().map(|model| (*model).to_owned()).collect();
        LocalServer { provider: "ollama", base_url: "http://127.0.0.1:11434/v1".to_owned(), models }
    }

    #[test]
    fn chooses_single_model_only_after_yes() {
        let offers = ModelOffer::of_servers(&[server(&["qwen3:8b"])]);
        insta::assert_snapshot!(question(&offers).expect("an offer"), @r"
        no model is configured, so the built-in `offline` would answer (it is not a language model)
        use ollama/qwen3:8b at http://127.0.0.1:11434/v1 (a server on this machine)? [y/N]
        ");
        for answer in ["", "n", "no", "yep", "1", "\n", "offline"] {
            assert_eq!(chosen(&offers, answer), None, "{answer:?}");
        }
        for answer in ["y", "Y\n", "yes", " yes \r\n"] {
            assert_eq!(chosen(&offers, answer), Some(&offers[0]), "{answer:?}");
        }
        assert_eq!(
            offers[0].next_time(),
            "next time: --model ollama/qwen3:8b, or `model = \"ollama/qwen3:8b\"` in agent.toml"
        );
        assert_eq!(question(&[]), None);
    }

    #[test]
    fn chooses_among_several_models_only_by_number() {
        let mut offers = ModelOffer::of_servers(&[server(&["a", "b"])]);
        offers.push(ModelOffer::of_openai("https://api.openai.com/v1"));
        insta::assert_snapshot!(question(&offers).expect("offers"), @r"
        no model is configured, so the built-in `offline` would answer (it is not a language model); available models:
          1  ollama/a at http://127.0.0.1:11434/v1 (a server on this machine)
          2  ollama/b at http://127.0.0.1:11434/v1 (a server on this machine)
          3  openai/gpt-4.1-mini at https://api.openai.com/v1 (OPENAI_API_KEY is set)
        use which model? [1-3, or Enter for none]
        ");
        assert_eq!(chosen(&offers, "2\n").map(|offer| offer.name.as_str()), Some("ollama/b"));
        for answer in ["", "y", "0", "4", "-1", "2.0", "99999999999999999999999"] {
            assert_eq!(chosen(&offers, answer), None, "{answer:?}");
        }
        let many: Vec<_> = (0..12).map(|number| number.to_string()).collect();
        let many = ModelOffer::of_servers(&[server(&many.iter().map(String::as_str).collect::<Vec<_>>())]);
        let question = question(&many).expect("offers");
        assert!(question.contains("and 3 more") && question.contains("[1-9,"), "{question}");
        assert_eq!(chosen(&many, "10"), None, "a model that was not shown cannot be chosen");
    }
}
