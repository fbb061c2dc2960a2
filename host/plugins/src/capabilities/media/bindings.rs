//! Generated bindings of the contract's interface `media-store`.

#![allow(missing_docs, unreachable_pub, clippy::all, reason = "generated")]

wasmtime::component::bindgen!({
    inline: "
        package agent-host:host;

        world host {
            import agent-host:plugin/media-store@0.1.0;
        }
    ",
    path: "../../wit",
    imports: { default: async | trappable },
    with: {
        "agent-host:plugin/types": crate::contract::v0_1::bindings::agent_host::plugin::types,
        "agent-host:plugin/media-store.medium": super::OpenMediaItem,
        "agent-host:plugin/media-store.new-medium": super::MediaItemWriter,
    },
});
