//! What is offered on a terminal when nobody named a model: never taken silently.

use crate::terminal::text::shell_word;
use agent_models::LocalServer;
use std::fmt::Write;

/// A model of OpenAI's that can do what agents need, and is not dear.
const OPENAI_MODEL: &str = "gpt-4.1-mini";
/// Most models that are offered.
const MOST: usize = 9;

/// One model that could be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    /// `PROVIDER/MODEL`.
    pub(crate) name: String,
    /// Where it is.
    pub(crate) base_url: String,
    /// Why it is offered.
    pub(crate) reason: &'static str,
}

/// The model of OpenAI's that is offered where its key is set.
pub(crate) fn of_openai(base_url: &str) -> Offer {
    let (name, base_url) = (format!("openai/{OPENAI_MODEL}"), base_url.to_owned());
    Offer { name, base_url, reason: "OPENAI_API_KEY is set" }
}

/// The models of servers on this machine.
pub(crate) fn of_servers(servers: &[LocalServer]) -> Vec<Offer> {
    let of_server = |server: &LocalServer| {
        let offer = |model: &String| Offer {
            name: format!("{}/{model}", server.provider),
            base_url: server.base_url.clone(),
            reason: "a server on this machine",
        };
        server.models.iter().map(offer).collect::<Vec<_>>()
    };
    servers.iter().flat_map(of_server).collect()
}

/// What a person is asked; nothing where there is nothing to offer.
pub(crate) fn question(offers: &[Offer]) -> Option<String> {
    // A name that could be read as other words is in quotes.
    let line = |offer: &Offer| format!("{} at {} ({})", shell_word(&offer.name), offer.base_url, offer.reason);
    let begin = "no model is named, so the built-in `offline` would answer, which is no language model";
    match offers {
        [] => None,
        [one] => Some(format!("{begin}\nuse {}? [y/N] ", line(one))),
        many => {
            let mut question = format!("{begin}; there are:\n");
            for (index, offer) in many.iter().take(MOST).enumerate() {
                let _ = writeln!(question, "  {}  {}", index + 1, line(offer));
            }
            if many.len() > MOST {
                let _ = writeln!(question, "  and {} more, for --model PROVIDER/MODEL", many.len() - MOST);
            }
            let _ = write!(question, "use which one? [1-{}, or Enter for none] ", many.len().min(MOST));
            Some(question)
        }
    }
}

/// The offer that an answer takes; whatever is not clearly one of them takes none.
pub(crate) fn chosen<'o>(offers: &'o [Offer], answer: &str) -> Option<&'o Offer> {
    let answer = answer.trim().to_lowercase();
    match offers {
        [one] => ["y", "yes"].contains(&answer.as_str()).then_some(one),
        many => many.iter().take(MOST).nth(answer.parse::<usize>().ok()?.checked_sub(1)?),
    }
}

/// What to write next time, so that nobody is asked again.
pub(crate) fn next_time(offer: &Offer) -> String {
    let name = &offer.name;
    format!(
        "next time: --model {}, or `model = {}` in agent.toml",
        shell_word(name),
        toml_edit::Value::from(name.as_str())
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(models: &[&str]) -> LocalServer {
        let models = models.iter().map(|model| (*model).to_owned()).collect();
        LocalServer { provider: "ollama", base_url: "http://127.0.0.1:11434/v1".to_owned(), models }
    }

    /// Issue 3: offered, never taken silently.
    #[test]
    fn one_model_is_taken_by_yes_only() {
        let offers = of_servers(&[server(&["qwen3:8b"])]);
        insta::assert_snapshot!(question(&offers).expect("an offer"), @r"
        no model is named, so the built-in `offline` would answer, which is no language model
        use ollama/qwen3:8b at http://127.0.0.1:11434/v1 (a server on this machine)? [y/N]
        ");
        for answer in ["", "n", "no", "yep", "1", "\n", "offline"] {
            assert_eq!(chosen(&offers, answer), None, "{answer:?}");
        }
        for answer in ["y", "Y\n", "yes", " yes \r\n"] {
            assert_eq!(chosen(&offers, answer), Some(&offers[0]), "{answer:?}");
        }
        assert_eq!(
            next_time(&offers[0]),
            "next time: --model ollama/qwen3:8b, or `model = \"ollama/qwen3:8b\"` in agent.toml"
        );
        assert_eq!(question(&[]), None);
    }

    #[test]
    fn several_are_taken_by_number_only() {
        let mut offers = of_servers(&[server(&["a", "b"])]);
        offers.push(of_openai("https://api.openai.com/v1"));
        insta::assert_snapshot!(question(&offers).expect("offers"), @r"
        no model is named, so the built-in `offline` would answer, which is no language model; there are:
          1  ollama/a at http://127.0.0.1:11434/v1 (a server on this machine)
          2  ollama/b at http://127.0.0.1:11434/v1 (a server on this machine)
          3  openai/gpt-4.1-mini at https://api.openai.com/v1 (OPENAI_API_KEY is set)
        use which one? [1-3, or Enter for none]
        ");
        assert_eq!(chosen(&offers, "2\n").map(|offer| offer.name.as_str()), Some("ollama/b"));
        for answer in ["", "y", "0", "4", "-1", "2.0", "99999999999999999999999"] {
            assert_eq!(chosen(&offers, answer), None, "{answer:?}");
        }
        let many: Vec<_> = (0..12).map(|number| number.to_string()).collect();
        let many = of_servers(&[server(&many.iter().map(String::as_str).collect::<Vec<_>>())]);
        let question = question(&many).expect("offers");
        assert!(question.contains("and 3 more") && question.contains("[1-9,"), "{question}");
        assert_eq!(chosen(&many, "10"), None, "what was not shown is not taken");
    }
}
