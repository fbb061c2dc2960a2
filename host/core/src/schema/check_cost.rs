//! Estimates the work of checking a document against a schema. A schema may check the same value several times, and the
//! number of checks may double at each level of the document. If the estimate is too large, the document is not checked
//! (row 34).

use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap};

/// Maximum number of subschema checks for one document. A computer performs this number of checks in well under
/// a second.
pub(super) const MAX_CHECKS: f64 = 2_000_000.0;
/// A schema that checks each value at most this number of times always needs little work. For such a schema, the
/// checks of a document are not counted.
const ALWAYS_QUICK: f64 = 1_000.0;

/// Maximum number of subschemas in one schema.
pub(super) const MAX_SUBSCHEMAS: usize = 50_000;

/// Keywords whose subschemas check the same value as the schema that contains the keyword.
const SAME_VALUE: [&str; 7] = ["allOf", "anyOf", "oneOf", "not", "if", "then", "else"];
/// Keywords whose subschemas check any member of an object.
const ANY_MEMBER: [&str; 2] = ["additionalProperties", "unevaluatedProperties"];
/// Keywords whose subschemas check any element of an array.
const ANY_ELEMENT: [&str; 4] = ["items", "contains", "additionalItems", "unevaluatedItems"];

/// Why the work of checking documents against a schema cannot be estimated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoEstimate {
    /// A subschema applies itself, directly or through other subschemas, to the value that it checks.
    Circular,
    /// The schema has more than [`MAX_SUBSCHEMAS`] subschemas.
    TooManySubschemas,
}

/// A step from an object to a member, or from an array to an element.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Step {
    Member(String),
    AnyMember,
    Element(usize),
    AnyElement,
}

/// For each subschema, the number of times that it checks a value. The key is the position of the subschema
/// in [`CheckCost::order`].
type Counts = BTreeMap<usize, f64>;

/// The graph of a schema's subschemas, which is used to calculate how many checks the validation of a document needs.
#[derive(Debug, Default)]
pub(super) struct CheckCost {
    /// For each subschema, the indices of the other subschemas that it applies to the whole value.
    same_value: Vec<Vec<usize>>,
    /// For each subschema, the subschemas that it applies to the members or elements of the value that it checks.
    inner_values: Vec<Vec<(Step, usize)>>,
    /// The subschemas in topological order: if subschema A applies subschema B to the same value that A checks, A
    /// precedes B.
    order: Vec<usize>,
    /// Position of each subschema in `order`.
    rank: Vec<usize>,
}

impl CheckCost {
    /// Builds the graph of a schema's subschemas.
    pub(super) fn of(schema: &Value) -> Result<Self, NoEstimate> {
        let mut check_cost = Self::default();
        let mut nodes = HashMap::new();
        let mut references = Vec::new();
        let root = check_cost.add(schema, String::new(), &mut nodes, &mut references);
        root.ok_or(NoEstimate::TooManySubschemas)?;
        for (from, target) in references {
            // A reference without a target is invalid. The error is reported when the schema is compiled.
            if let Some(to) = nodes.get(&target) {
                check_cost.same_value[from].push(*to);
            }
        }
        check_cost.sort().ok_or(NoEstimate::Circular)?;
        Ok(check_cost)
    }

    /// Whether the work of a check is small for every document. The result is conservative: it may be false although
    /// the work is always small.
    pub(super) fn is_always_small(&self) -> bool {
        let mut applied = BTreeMap::from([(self.rank[0], 1.0)]);
        for _ in 0..=super::MAX_DEPTH {
            let checking = self.checking_same_value(applied);
            let total: f64 = checking.values().sum();
            if total > ALWAYS_QUICK {
                return false;
            }
            let mut maxima: BTreeMap<usize, f64> = BTreeMap::new();
            for counts in self.subschemas_of_inner_values(&checking).into_values() {
                for (rank, count) in counts {
                    let maximum = maxima.entry(rank).or_default();
                    *maximum = maximum.max(count);
                }
            }
            if maxima.is_empty() {
                break;
            }
            applied = maxima;
        }
        true
    }

    /// Returns the number of subschema checks for a document. Counting stops when the number exceeds [`MAX_CHECKS`].
    pub(super) fn checks(&self, document: &Value) -> f64 {
        let mut checks = 0.0;
        self.count(document, BTreeMap::from([(self.rank[0], 1.0)]), &mut checks);
        checks
    }

    /// Adds to `checks` the number of subschema checks for a value and for all values inside this value.
    fn count(&self, value: &Value, applied: Counts, checks: &mut f64) {
        let checking = self.checking_same_value(applied);
        *checks += checking.values().sum::<f64>();
        if *checks > MAX_CHECKS {
            return;
        }
        let inner = self.subschemas_of_inner_values(&checking);
        let applied_to_child = |own: &Step, any: &Step| {
            let mut applied = inner.get(any).cloned().unwrap_or_default();
            for (rank, count) in inner.get(own).into_iter().flatten() {
                *applied.entry(*rank).or_default() += count;
            }
            applied
        };
        let children: Vec<(Counts, &Value)> = match value {
            Value::Object(fields) => {
                let applied = |name: &String| applied_to_child(&Step::Member(name.clone()), &Step::AnyMember);
                fields.iter().map(|(name, child)| (applied(name), child)).collect()
            }
            Value::Array(items) => {
                let applied = |index| applied_to_child(&Step::Element(index), &Step::AnyElement);
                items.iter().enumerate().map(|(index, child)| (applied(index), child)).collect()
            }
            _ => return,
        };
        for (applied, child) in children.into_iter().filter(|(applied, _)| !applied.is_empty()) {
            self.count(child, applied, checks);
            if *checks > MAX_CHECKS {
                return;
            }
        }
    }

    /// Returns all subschemas that check a value: the subschemas in `applied`, the subschemas that these apply to
    /// the same value, and so on.
    fn checking_same_value(&self, mut applied: Counts) -> Counts {
        let mut checking = BTreeMap::new();
        // A subschema only adds to the counts of subschemas with higher ranks, so the count of the subschema with the
        // lowest rank is complete.
        while let Some((rank, count)) = applied.pop_first() {
            for next in &self.same_value[self.order[rank]] {
                *applied.entry(self.rank[*next]).or_default() += count;
            }
            checking.insert(rank, count);
        }
        checking
    }

    /// For each step from the checked value to a value inside it, returns the subschemas that are applied to the
    /// inner value.
    fn subschemas_of_inner_values(&self, checking: &Counts) -> HashMap<&Step, Counts> {
        let mut inner: HashMap<&Step, Counts> = HashMap::new();
        for (rank, count) in checking {
            for (step, next) in &self.inner_values[self.order[*rank]] {
                *inner.entry(step).or_default().entry(self.rank[*next]).or_default() += count;
            }
        }
        inner
    }

    /// Adds a schema and its subschemas to the graph. `None` means that the schema has too many subschemas.
    fn add(
        &mut self,
        schema: &Value,
        pointer: String,
        nodes: &mut HashMap<String, usize>,
        references: &mut Vec<(usize, String)>,
    ) -> Option<usize> {
        let node = self.same_value.len();
        if node == MAX_SUBSCHEMAS {
            return None;
        }
        self.same_value.push(Vec::new());
        self.inner_values.push(Vec::new());
        nodes.insert(format!("#{pointer}"), node);
        let Value::Object(fields) = schema else { return Some(node) };
        for anchor in ["$anchor", "$dynamicAnchor", "$id"] {
            if let Some(name) = fields.get(anchor).and_then(Value::as_str) {
                nodes.insert(format!("#{}", name.trim_start_matches('#')), node);
            }
        }
        for reference in ["$ref", "$dynamicRef", "$recursiveRef"] {
            if let Some(target) = fields.get(reference).and_then(Value::as_str) {
                references.push((node, target.trim_end_matches('/').to_owned()));
            }
        }
        self.add_fields(fields, node, &pointer, (nodes, references))?;
        Some(node)
    }

    fn add_fields(
        &mut self,
        fields: &Map<String, Value>,
        node: usize,
        pointer: &str,
        (nodes, references): (&mut HashMap<String, usize>, &mut Vec<(usize, String)>),
    ) -> Option<()> {
        for (keyword, value) in fields {
            let pointer = format!("{pointer}/{}", escaped(keyword));
            let named = matches!(
                keyword.as_str(),
                "properties" | "patternProperties" | "dependentSchemas" | "$defs" | "definitions"
            );
            let children: Vec<(String, &Value)> = match value {
                Value::Object(members) if named => {
                    members.iter().map(|(name, child)| (format!("{pointer}/{}", escaped(name)), child)).collect()
                }
                Value::Array(items) if is_applicator(keyword) => {
                    items.iter().enumerate().map(|(index, child)| (format!("{pointer}/{index}"), child)).collect()
                }
                value if !named && is_applicator(keyword) => vec![(pointer.clone(), value)],
                _ => continue,
            };
            for (pointer, child) in children {
                let name = pointer.rsplit('/').next().unwrap_or_default().replace("~1", "/").replace("~0", "~");
                let child = self.add(child, pointer, nodes, references)?;
                match keyword.as_str() {
                    "$defs" | "definitions" => {}
                    "properties" => self.inner_values[node].push((Step::Member(name), child)),
                    "prefixItems" => {
                        self.inner_values[node].push((Step::Element(name.parse().unwrap_or_default()), child))
                    }
                    "dependentSchemas" => self.same_value[node].push(child),
                    keyword if SAME_VALUE.contains(&keyword) => self.same_value[node].push(child),
                    keyword if ANY_ELEMENT.contains(&keyword) => {
                        self.inner_values[node].push((Step::AnyElement, child))
                    }
                    _ => self.inner_values[node].push((Step::AnyMember, child)),
                }
            }
        }
        Some(())
    }

    /// Sorts the subschemas topologically. `None` means that a subschema applies itself, directly or through other
    /// subschemas, to the value that it checks.
    fn sort(&mut self) -> Option<()> {
        let mut unsorted_parents = vec![0_usize; self.same_value.len()];
        self.same_value.iter().flatten().for_each(|next| unsorted_parents[*next] += 1);
        let mut ready: Vec<usize> = (0..unsorted_parents.len()).filter(|node| unsorted_parents[*node] == 0).collect();
        while let Some(node) = ready.pop() {
            self.order.push(node);
            for next in &self.same_value[node] {
                unsorted_parents[*next] -= 1;
                if unsorted_parents[*next] == 0 {
                    ready.push(*next);
                }
            }
        }
        self.rank = vec![0; self.order.len()];
        self.order.iter().enumerate().for_each(|(rank, node)| self.rank[*node] = rank);
        (self.order.len() == self.same_value.len()).then_some(())
    }
}

fn is_applicator(keyword: &str) -> bool {
    SAME_VALUE.contains(&keyword)
        || ANY_MEMBER.contains(&keyword)
        || ANY_ELEMENT.contains(&keyword)
        || matches!(keyword, "prefixItems" | "propertyNames")
}

/// Escapes a name for a JSON pointer.
fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}
