//! Generated bindings of `agent-host:model`.

#![allow(missing_docs, unreachable_pub, clippy::all, reason = "generated")]

wasmtime::component::bindgen!({
    inline: "
        package agent-host:host;

        world host {
            import agent-host:model/host-model@0.1.0;
        }
    ",
    path: "../../wit/model",
    imports: { default: async | trappable },
});
