//! Tests of the table tools (P2, S7): exact numbers, types, limits, bad rows and bad arguments.

use agent_host_sdk::prelude::*;
use agent_host_sdk::testing::Host;
use table::TablePlugin;

const SALES: &str = "\
region,item,amount,price
north,pen,10,0.10
south,pen,5,0.20
north,ink,1,12.5
south,paper,,3
";

fn call(name: &str, arguments: Value) -> Result<Outcome, ToolError> {
    TablePlugin::tools().call(name, arguments)
}

fn value(name: &str, mut arguments: Value, data: &str) -> Value {
    arguments["from"] = json!({ "data": data });
    let outcome = call(name, arguments).unwrap_or_else(|error| panic!("{name}: {}", error.message()));
    outcome.value().expect("the result is structured")
}

fn refusal(name: &str, mut arguments: Value, data: &str) -> String {
    arguments["from"] = json!({ "data": data });
    match call(name, arguments) {
        Err(error @ ToolError::InvalidArguments(_)) => error.message(),
        other => panic!("{name}: {other:?}"),
    }
}

#[test]
fn describes_columns_and_bad_rows() {
    let data = "id,when,n,flag\n007,2026-11-20,1,\n08,2026-11-21,2.50,\nbroken\n9,x,3,\n";
    let description = value("table.describe", json!({}), data);
    assert_eq!((&description["rows"], &description["bad_row_count"]), (&json!(3), &json!(1)));
    assert_eq!(description["bad_rows"], json!([{ "line": 4, "problem": "1 fields, but the header has 4" }]));
    let types: Vec<&Value> = (0..4).map(|column| &description["columns"][column]["type"]).collect();
    assert_eq!(types, ["text", "text", "decimal", "empty"], "leading zeros make an identifier");
    let n = &description["columns"][2];
    assert_eq!((&n["min"], &n["max"], &n["distinct"]), (&json!(1), &json!(3), &json!(3)));
    assert_eq!(description["columns"][3]["empty"], 3);
}

#[test]
fn reads_json_rows_with_differing_keys_and_exact_numbers() {
    let data = r#"[{"a": 12345678901234567890.25, "b": "x"}, {"b": true, "c": [1]}, 7, {"a": 1e2, "b": null}]"#;
    let description = value("table.describe", json!({}), data);
    assert_eq!(description["bad_rows"], json!([{ "line": 3, "problem": "not a JSON object" }]));
    let types: Vec<&Value> = (0..3).map(|column| &description["columns"][column]["type"]).collect();
    assert_eq!(types, ["decimal", "mixed", "nested"]);
    let sum = value("table.aggregate", json!({ "aggregates": [{ "function": "sum", "column": "a" }] }), data);
    assert_eq!(sum["rows"], json!([{ "sum_a": "12345678901234567990.25" }]), "too long for a JSON number: a string");
}

#[test]
fn filters_by_number_and_by_text() {
    let rows = |conditions: Value| {
        let arguments = json!({ "conditions": conditions, "columns": ["item", "amount"], "output": "csv" });
        value("table.filter", arguments, SALES)["csv"].as_str().expect("csv").to_owned()
    };
    let more_than = |value: Value| json!([{ "column": "amount", "is": "greater", "value": value }]);
    assert_eq!(rows(more_than(json!(5))), "item,amount\npen,10\n", "10 is more than 5 as a number, not as text");
    assert_eq!(rows(more_than(json!("5"))), "item,amount\npen,10\n");
    assert_eq!(rows(json!([{ "column": "amount", "is": "empty" }])), "item,amount\npaper,\n");
    assert_eq!(
        rows(json!([{ "column": "item", "is": "starts_with", "value": "p" },
        { "column": "region", "is": "not_equal", "value": "north" }])),
        "item,amount\npen,5\npaper,\n"
    );
    assert_eq!(rows(json!([])).lines().count(), 5);
    let any = json!({ "require": "any", "conditions": [
        { "column": "item", "is": "equal", "value": "ink" },
        { "column": "price", "is": "less_or_equal", "value": 0.1 }] });
    assert_eq!(value("table.filter", any, SALES)["row_count"], 2);
}

#[test]
fn reports_comparisons_of_text_with_numbers() {
    let arguments = json!({ "conditions": [{ "column": "item", "is": "greater", "value": 3 }] });
    let result = value("table.filter", arguments, SALES);
    assert_eq!(result["row_count"], 0);
    assert!(result["notes"][0].as_str().expect("a note").starts_with("4 comparisons of text with a number"));
}

#[test]
fn groups_with_exact_sums_and_reports_rounded_means() {
    let arguments = json!({ "by": ["region"], "aggregates": [
        { "function": "count" }, { "function": "count", "column": "amount", "as": "filled" },
        { "function": "sum", "column": "price" }, { "function": "min", "column": "item" },
        { "function": "max", "column": "price" }, { "function": "mean", "column": "amount" }] });
    let result = value("table.group", arguments, SALES);
    assert_eq!(
        result["rows"],
        json!([
            { "region": "north", "count": 2, "filled": 2, "sum_price": 12.6, "min_item": "ink", "max_price": 12.5,
              "mean_amount": 5.5 },
            { "region": "south", "count": 2, "filled": 1, "sum_price": 3.2, "min_item": "paper", "max_price": 3,
              "mean_amount": 5 },
        ])
    );
    let thirds = "n\n1\n0\n0\n";
    let result = value("table.aggregate", json!({ "aggregates": [{ "function": "mean", "column": "n" }] }), thirds);
    assert_eq!(result["rows"], json!([{ "mean_n": 0.333333333333 }]));
    assert!(result["notes"][0].as_str().expect("a note").contains("rounded to 12 digits"));
}

#[test]
fn sums_are_exact() {
    let data = format!("n\n{}", "0.1\n".repeat(1_000));
    let result = value("table.aggregate", json!({ "aggregates": [{ "function": "sum", "column": "n" }] }), &data);
    assert_eq!(result["rows"], json!([{ "sum_n": 100 }]));
}

#[test]
fn aggregates_of_no_rows_are_empty() {
    let arguments = json!({ "aggregates": [
        { "function": "count" }, { "function": "sum", "column": "n" }, { "function": "mean", "column": "n" },
        { "function": "max", "column": "n" }] });
    let result = value("table.aggregate", arguments, "n\n");
    assert_eq!(result["rows"], json!([{ "count": 0, "sum_n": 0, "mean_n": null, "max_n": null }]));
}

#[test]
fn sorts_numbers_as_numbers_and_empty_cells_last() {
    let items = |by: Value| {
        let result = value("table.sort", json!({ "by": by, "columns": ["item", "region"] }), SALES);
        let rows = result["rows"].as_array().expect("rows").clone();
        rows.iter().map(|row| format!("{} {}", row["item"], row["region"]).replace('"', "")).collect::<Vec<_>>()
    };
    let by_amount = items(json!([{ "column": "amount" }]));
    assert_eq!(by_amount, ["ink north", "pen south", "pen north", "paper south"]);
    let reverse = items(json!([{ "column": "amount", "order": "descending" }]));
    assert_eq!(reverse, ["pen north", "pen south", "ink north", "paper south"]);
    let by_two = items(json!([{ "column": "region" }, { "column": "price", "order": "descending" }]));
    assert_eq!(by_two, ["ink north", "pen north", "paper south", "pen south"]);
}

#[test]
fn limit_reports_rows_left_out() {
    let result = value("table.sort", json!({ "by": [{ "column": "price" }], "limit": 1 }), SALES);
    assert_eq!((&result["row_count"], &result["left_out"]), (&json!(4), &json!(3)));
    assert_eq!(result["notes"], json!(["3 of 4 rows are left out because of the limit of 1"]));
    assert!(refusal("table.sort", json!({ "by": [{ "column": "price" }], "limit": 0 }), SALES).contains("/limit"));
}

#[test]
fn quotes_csv_fields() {
    let data = "name\tnote\nA\tsays \"hi\", twice\n";
    let result = value("table.filter", json!({ "conditions": [], "output": "csv" }), data);
    assert_eq!(result["csv"], "name,note\nA,\"says \"\"hi\"\", twice\"\n");
    let quoted = "a,b\n\"line one\nline two\",2\nshort\n";
    let result = value("table.filter", json!({ "conditions": [] }), quoted);
    assert_eq!(result["rows"], json!([{ "a": "line one\nline two", "b": 2 }]));
    assert_eq!(result["bad_rows"][0]["line"], 4, "line breaks inside a field count");
}

#[test]
fn p2_errors_name_bad_input() {
    let sum = |column: &str| json!({ "aggregates": [{ "function": "sum", "column": column }] });
    for (name, arguments, data, message) in [
        ("table.aggregate", sum("nope"), SALES, "no column `nope`; columns: region, item, amount, price"),
        ("table.aggregate", sum("n"), "n\n1\nn/a\n3\n", "line 3: `n/a` in column `n` is not a number"),
        ("table.aggregate", json!({ "aggregates": [{ "function": "mean" }] }), SALES, "`mean` needs a column"),
        ("table.group", json!({ "by": [], "aggregates": [] }), SALES, "table.aggregate"),
        (
            "table.group",
            json!({ "by": ["n"], "aggregates": [{ "function": "count", "as": "n" }] }),
            "n\n",
            "two columns",
        ),
        ("table.describe", json!({}), "", "the text is empty"),
        ("table.describe", json!({}), "a,,c\n1,2,3\n", "column 2 has no name"),
        ("table.describe", json!({}), "a,b,a\n", "column `a` twice"),
        ("table.describe", json!({ "format": "json" }), "{\"a\": 1}", "array of objects"),
        ("table.describe", json!({}), "[{\"a\": 1},", "array of objects"),
        ("table.filter", json!({ "conditions": [{ "column": "item", "is": "equal" }] }), SALES, "use `empty`"),
        ("table.filter", json!({ "conditions": [{ "column": "item", "is": "like", "value": 1 }] }), SALES, "like"),
        ("table.sort", json!({ "by": [{ "column": "prise" }] }), SALES, "no column `prise`"),
    ] {
        let refusal = refusal(name, arguments, data);
        assert!(refusal.contains(message), "{name}: {refusal}");
    }
    let both = json!({ "from": { "path": "a.csv", "data": "a\n" } });
    assert!(matches!(call("table.describe", both), Err(ToolError::InvalidArguments(_))));
}

#[test]
fn rejects_too_many_rows() {
    let rows = table::table::MAX_ROWS + 1;
    assert!(
        refusal("table.describe", json!({}), &format!("n\n{}", "1\n".repeat(rows))).contains("more than 200000 rows")
    );
}

#[test]
fn p6_reads_files_only_in_granted_trees() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    std::fs::write(directory.path().join("sales.tsv"), "\u{feff}a\tb\n1,5\t2\n").expect("a temporary file");
    let root = directory.path().to_string_lossy().into_owned();
    let describe = |path: String| call("table.describe", json!({ "from": { "path": path } }));
    let mut host = Host::new().tree(root.as_str());
    let outcome = host.run(|| describe(format!("{root}/sales.tsv"))).expect("the file is a table").value();
    let columns = &outcome.expect("structured")["columns"];
    assert_eq!(
        (&columns[0]["name"], &columns[0]["type"], &columns[1]["type"]),
        (&json!("a"), &json!("text"), &json!("integer"))
    );
    assert!(matches!(host.run(|| describe(format!("{root}/no.csv"))), Err(ToolError::NotFound(_))));
    assert!(matches!(host.run(|| describe("/etc/passwd".into())), Err(ToolError::Denied(_))));
}
