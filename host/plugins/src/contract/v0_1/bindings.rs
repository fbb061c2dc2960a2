//! Generated bindings of the interfaces that plugins export, and of the types that they share with imported interfaces.
//! These bindings are used only in this crate: the module `conversion` converts them to the host's own types. The
//! bindings of imported interfaces are in the modules of the capabilities.

#![allow(missing_docs, unreachable_pub, clippy::all, reason = "generated")]

wasmtime::component::bindgen!({
    inline: "
        package agent-host:host;

        world host {
            import agent-host:plugin/types@0.1.0;
            export agent-host:plugin/tool@0.1.0;
            export agent-host:plugin/context-builder@0.1.0;
            export agent-host:plugin/step-context@0.1.0;
            export agent-host:plugin/output-validator@0.1.0;
            export agent-host:plugin/media-policy@0.1.0;
        }
    ",
    path: "../../wit",
    imports: { default: async | trappable },
    exports: { default: async },
});
