//! Generated bindings of the two drafts of `wasi:keyvalue` that current components use.

#![allow(missing_docs, unreachable_pub, clippy::all, reason = "generated")]

wasmtime::component::bindgen!({
    inline: "
        package agent-host:host;

        world host {
            import wasi:keyvalue/store@0.2.0-draft;
            import wasi:keyvalue/atomics@0.2.0-draft;
            import wasi:keyvalue/batch@0.2.0-draft;
            import wasi:keyvalue/store@0.2.0-draft2;
            import wasi:keyvalue/atomics@0.2.0-draft2;
            import wasi:keyvalue/batch@0.2.0-draft2;
        }
    ",
    path: ["wit/keyvalue-draft.wit", "wit/keyvalue-draft2.wit"],
    imports: { default: async | trappable },
    with: {
        "wasi:keyvalue/store@0.2.0-draft.bucket": super::OpenBucket,
        "wasi:keyvalue/store@0.2.0-draft2.bucket": super::OpenBucket,
        "wasi:keyvalue/atomics@0.2.0-draft2.cas": super::CasValue,
    },
});
