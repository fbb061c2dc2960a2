"""Measures a durable turn in LangGraph: two model calls and one tool call in between, each a node whose result is
checkpointed in PostgreSQL before the next node begins. The model is a function that answers immediately.

Usage: langgraph_turn.py CONNECTION TURNS
"""

import sys
import time
import uuid
from importlib.metadata import version
from typing import Annotated, TypedDict

try:
    import psycopg
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
    from langgraph.checkpoint.postgres import PostgresSaver
    from langgraph.graph import END, START, StateGraph
    from langgraph.graph.message import add_messages
except ImportError:
    sys.exit(77)


class State(TypedDict):
    messages: Annotated[list, add_messages]


def model(state: State) -> State:
    if isinstance(state["messages"][-1], ToolMessage):
        return {"messages": [AIMessage("It has 42 lines.")]}
    call = {"name": "echo", "args": {"text": "hello"}, "id": "1"}
    return {"messages": [AIMessage("", tool_calls=[call])]}


def tool(state: State) -> State:
    call = state["messages"][-1].tool_calls[0]
    return {"messages": [ToolMessage(call["args"]["text"], tool_call_id=call["id"])]}


def main() -> None:
    connection, turns = sys.argv[1], int(sys.argv[2])
    options = {"autocommit": True, "prepare_threshold": 0, "row_factory": psycopg.rows.dict_row}
    with psycopg.connect(connection, **options) as database:
        saver = PostgresSaver(database)
        saver.setup()
        builder = StateGraph(State)
        builder.add_node("model", model)
        builder.add_node("tool", tool)
        builder.add_edge(START, "model")
        builder.add_conditional_edges("model", lambda state: "tool" if state["messages"][-1].tool_calls else END)
        builder.add_edge("tool", "model")
        graph = builder.compile(checkpointer=saver)
        print(f"langgraph {version('langgraph')}, {version('langgraph-checkpoint-postgres')}")
        for turn in range(turns // 10 + turns):
            begun = time.perf_counter()
            config = {"configurable": {"thread_id": str(uuid.uuid4())}}
            question = {"messages": [HumanMessage("How many lines has notes.txt?")]}
            result = graph.invoke(question, config, durability="sync")
            elapsed = time.perf_counter() - begun
            if result["messages"][-1].content != "It has 42 lines.":
                sys.exit("the turn has the wrong answer")
            if turn >= turns // 10:
                print(round(elapsed * 1e6))


main()
