//! The scenarios of the conformance suite that are expected to fail, each with the reason.

/// The host offers only tools, because plugins have no prompts, resources, completions and templates.
const ONLY_TOOLS: &str = "the host offers only tools";
/// Tools of the host do not use the client's model, files or log.
const NO_CLIENT_FEATURES: &str = "tools cannot use the client's model, folders or log";
/// Only the host asks the user of a client: for approvals, and for answers to agents. The forms are the host's own.
const OWN_FORMS: &str = "tools cannot define forms: the host asks for approvals with its own form";

/// Scenarios for servers with the newest version of the protocol that fail, and why.
pub(super) const SERVER_STATELESS: &[(&str, &str)] = &[
    ("server-stateless", "its checks of capabilities and logs need tools that use the client's features"),
    ("completion-complete", ONLY_TOOLS),
    ("resources-list", ONLY_TOOLS),
    ("resources-read-text", ONLY_TOOLS),
    ("resources-read-binary", ONLY_TOOLS),
    ("resources-templates-read", ONLY_TOOLS),
    ("prompts-list", ONLY_TOOLS),
    ("prompts-get-simple", ONLY_TOOLS),
    ("prompts-get-with-args", ONLY_TOOLS),
    ("prompts-get-embedded-resource", ONLY_TOOLS),
    ("prompts-get-with-image", ONLY_TOOLS),
    ("caching", "its checks of prompts and resources; the checks of tools pass"),
    ("input-required-result-basic-elicitation", OWN_FORMS),
    ("input-required-result-basic-sampling", NO_CLIENT_FEATURES),
    ("input-required-result-basic-list-roots", NO_CLIENT_FEATURES),
    ("input-required-result-multiple-input-requests", OWN_FORMS),
    ("input-required-result-multi-round", OWN_FORMS),
    ("input-required-result-non-tool-request", ONLY_TOOLS),
    ("input-required-result-capability-check", NO_CLIENT_FEATURES),
    ("input-required-result-ignore-extra-params", OWN_FORMS),
    ("sep-2164-resource-not-found", ONLY_TOOLS),
];

/// Scenarios for servers with the version of the protocol before it that fail, and why.
pub(super) const SERVER_WITH_HANDSHAKE: &[(&str, &str)] = &[
    ("logging-set-level", NO_CLIENT_FEATURES),
    ("completion-complete", ONLY_TOOLS),
    ("tools-call-with-logging", NO_CLIENT_FEATURES),
    ("tools-call-sampling", NO_CLIENT_FEATURES),
    ("elicitation-sep1034-defaults", OWN_FORMS),
    ("elicitation-sep1330-enums", OWN_FORMS),
    ("resources-list", ONLY_TOOLS),
    ("resources-read-text", ONLY_TOOLS),
    ("resources-read-binary", ONLY_TOOLS),
    ("resources-templates-read", ONLY_TOOLS),
    ("resources-subscribe", ONLY_TOOLS),
    ("resources-unsubscribe", ONLY_TOOLS),
    ("prompts-list", ONLY_TOOLS),
    ("prompts-get-simple", ONLY_TOOLS),
    ("prompts-get-with-args", ONLY_TOOLS),
    ("prompts-get-embedded-resource", ONLY_TOOLS),
    ("prompts-get-with-image", ONLY_TOOLS),
];

/// A server's key is a header in the configuration, so the client has no browser and no page to which a sign-in returns.
const NO_SIGN_IN: &str = "the client has no OAuth: keys of servers are headers in the configuration";
/// Forms of servers are not shown, because the host does not trust servers.
const NO_FORMS: &str = "the client refuses questions of servers during a call";

/// Scenarios for clients with the newest version of the protocol that fail, and why.
pub(super) const CLIENT_STATELESS: &[(&str, &str)] = &[
    ("sep-2322-client-request-state", NO_FORMS),
    ("http-custom-headers", "the host refuses `null` for an argument whose schema does not allow it"),
    ("auth/metadata-default", NO_SIGN_IN),
    ("auth/metadata-var1", NO_SIGN_IN),
    ("auth/metadata-var2", NO_SIGN_IN),
    ("auth/metadata-var3", NO_SIGN_IN),
    ("auth/basic-cimd", NO_SIGN_IN),
    ("auth/scope-from-www-authenticate", NO_SIGN_IN),
    ("auth/scope-from-scopes-supported", NO_SIGN_IN),
    ("auth/scope-omitted-when-undefined", NO_SIGN_IN),
    ("auth/scope-step-up", NO_SIGN_IN),
    ("auth/scope-retry-limit", NO_SIGN_IN),
    ("auth/token-endpoint-auth-basic", NO_SIGN_IN),
    ("auth/token-endpoint-auth-post", NO_SIGN_IN),
    ("auth/token-endpoint-auth-none", NO_SIGN_IN),
    ("auth/pre-registration", NO_SIGN_IN),
    ("auth/resource-mismatch", NO_SIGN_IN),
    ("auth/offline-access-scope", NO_SIGN_IN),
    ("auth/offline-access-not-supported", NO_SIGN_IN),
    ("auth/authorization-server-migration", NO_SIGN_IN),
    ("auth/iss-supported", NO_SIGN_IN),
    ("auth/iss-not-advertised", NO_SIGN_IN),
    ("auth/iss-supported-missing", NO_SIGN_IN),
    ("auth/iss-wrong-issuer", NO_SIGN_IN),
    ("auth/iss-unexpected", NO_SIGN_IN),
    ("auth/iss-normalized", NO_SIGN_IN),
    ("auth/metadata-issuer-mismatch", NO_SIGN_IN),
];

/// Scenarios for clients with the version of the protocol before it that fail, and why.
pub(super) const CLIENT_WITH_HANDSHAKE: &[(&str, &str)] = &[
    ("elicitation-sep1034-client-defaults", NO_FORMS),
    ("auth/metadata-default", NO_SIGN_IN),
    ("auth/metadata-var1", NO_SIGN_IN),
    ("auth/metadata-var2", NO_SIGN_IN),
    ("auth/metadata-var3", NO_SIGN_IN),
    ("auth/basic-cimd", NO_SIGN_IN),
    ("auth/scope-from-www-authenticate", NO_SIGN_IN),
    ("auth/scope-from-scopes-supported", NO_SIGN_IN),
    ("auth/scope-omitted-when-undefined", NO_SIGN_IN),
    ("auth/scope-step-up", NO_SIGN_IN),
    ("auth/scope-retry-limit", NO_SIGN_IN),
    ("auth/token-endpoint-auth-basic", NO_SIGN_IN),
    ("auth/token-endpoint-auth-post", NO_SIGN_IN),
    ("auth/token-endpoint-auth-none", NO_SIGN_IN),
    ("auth/pre-registration", NO_SIGN_IN),
];
