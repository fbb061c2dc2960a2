//! A component with every plugin kind, built once for version 0.1.0 of the contract. This component is never rebuilt:
//! every later host must run the stored bytes.

#[allow(missing_docs, clippy::all, reason = "generated")]
mod bindings {
    wit_bindgen::generate!({
        inline: "
            package released:all;

            world all {
                import agent-host:plugin/media-store@0.1.0;
                export agent-host:plugin/tool@0.1.0;
                export agent-host:plugin/context-builder@0.1.0;
                export agent-host:plugin/step-context@0.1.0;
                export agent-host:plugin/output-validator@0.1.0;
                export agent-host:plugin/media-policy@0.1.0;
            }
        ",
        path: "../../../wit/released/0.1.0",
        generate_all,
    });
}

use bindings::agent_host::plugin::{media_store, types::Failure};
use bindings::exports::agent_host::plugin::{context_builder, media_policy, output_validator, step_context, tool};

struct Released;

const ANY: &str = r#"{"type":"object"}"#;

impl tool::Guest for Released {
    fn definitions() -> Vec<tool::Definition> {
        let definition = |name: &str, description: &str, traits| tool::Definition {
            name: name.into(),
            title: None,
            description: description.into(),
            input_schema: ANY.into(),
            output_schema: None,
            traits,
            priority: 1,
        };
        vec![
            definition("released.echo", "Gives back its arguments.", tool::Traits::READ_ONLY),
            definition("released.medium", "Makes a text medium.", tool::Traits::empty()),
            definition("released.deny", "Is never allowed.", tool::Traits::READ_ONLY | tool::Traits::SEQUENTIAL),
            definition("released.ask", "Asks a service.", tool::Traits::empty()),
        ]
    }

    fn call(name: String, args: String, context: tool::CallContext) -> Result<tool::Outcome, tool::Error> {
        let done = |content, structured| Ok(tool::Outcome::Done(tool::Done { content, structured }));
        match name.as_str() {
            "released.echo" => done(vec![tool::Content::Text(context.scope.agent)], Some(args)),
            "released.medium" => {
                let medium = media_store::NewMedium::new("text/plain", Some("words.txt"));
                let failed = |_| tool::Error::Failed("the medium cannot be written".into());
                medium.write(b"kept since 0.1.0").map_err(failed)?;
                let stored = medium.finish().map_err(failed)?;
                done(vec![tool::Content::StoredMedia(stored.digest)], None)
            }
            "released.ask" => Ok(tool::Outcome::Pending(tool::ServiceRequest {
                event_type: "test.asked.v1".into(),
                data: args,
                domain: None,
                answer_schema: None,
                answer_within: None,
            })),
            _ => Err(tool::Error::Denied("never".into())),
        }
    }
}

impl context_builder::Guest for Released {
    fn init(request: context_builder::Request) -> Result<context_builder::Prompt, Failure> {
        Ok(context_builder::Prompt {
            system: vec![context_builder::Section {
                name: "released".into(),
                text: "You work for ".to_owned() + &request.scope.agent,
                stability: context_builder::Stability::Fixed,
            }],
            history: context_builder::History::Keep,
            messages: Vec::new(),
            state: Some(b"state".to_vec()),
        })
    }
}

impl step_context::Guest for Released {
    fn step(request: step_context::Request) -> Result<Vec<context_builder::Section>, Failure> {
        Ok(vec![context_builder::Section {
            name: "released-step".into(),
            text: String::from_utf8(request.state.unwrap_or_default()).unwrap_or_default(),
            stability: context_builder::Stability::Dynamic,
        }])
    }
}

impl output_validator::Guest for Released {
    fn validate(request: output_validator::Request) -> Result<output_validator::Verdict, Failure> {
        if request.text.is_empty() {
            let message = "say something".to_owned();
            let problem = output_validator::Problem { pointer: String::new(), message };
            return Ok(output_validator::Verdict::Reject(vec![problem]));
        }
        Ok(output_validator::Verdict::AcceptAs(output_validator::Output::Text(request.text + " (accepted)")))
    }
}

impl media_policy::Guest for Released {
    fn decide(request: media_policy::Request) -> Result<Vec<media_policy::Decision>, Failure> {
        let mask = |_| media_policy::Decision::Mask("[kept]".into());
        Ok(request.items.iter().map(mask).collect())
    }
}

bindings::export!(Released with_types_in bindings);
