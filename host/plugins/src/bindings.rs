//! Generated bindings of the contract and of the standard interfaces that wasmtime-wasi lacks. They stay inside this
//! crate: `convert` turns them into the domain's words.

#![allow(missing_docs, unreachable_pub, clippy::all, reason = "generated")]

wasmtime::component::bindgen!({
    inline: "
        package agent-host:host;

        world host {
            import agent-host:plugin/media-store@0.1.0;
            import agent-host:model/host-model@0.1.0;
            import wasi:config/store@0.2.0-rc.1;
            import wasi:logging/logging;
            import wasi:keyvalue/store@0.2.0-draft;
            import wasi:keyvalue/atomics@0.2.0-draft;
            import wasi:keyvalue/batch@0.2.0-draft;
            import wasi:keyvalue/store@0.2.0-draft2;
            import wasi:keyvalue/atomics@0.2.0-draft2;
            import wasi:keyvalue/batch@0.2.0-draft2;
            export agent-host:plugin/tool@0.1.0;
            export agent-host:plugin/context-builder@0.1.0;
            export agent-host:plugin/step-context@0.1.0;
            export agent-host:plugin/output-validator@0.1.0;
            export agent-host:plugin/media-policy@0.1.0;
        }
    ",
    path: [
        "../../wit",
        "../../wit/model",
        "wit/config.wit",
        "wit/logging.wit",
        "wit/keyvalue-draft.wit",
        "wit/keyvalue-draft2.wit",
    ],
    imports: { default: async | trappable },
    exports: { default: async },
    with: {
        "agent-host:plugin/media-store.medium": crate::media::OpenMedium,
        "agent-host:plugin/media-store.new-medium": crate::media::GrowingMedium,
        "wasi:keyvalue/store@0.2.0-draft.bucket": crate::key_value::OpenBucket,
        "wasi:keyvalue/store@0.2.0-draft2.bucket": crate::key_value::OpenBucket,
        "wasi:keyvalue/atomics@0.2.0-draft2.cas": crate::key_value::SeenValue,
    },
});
