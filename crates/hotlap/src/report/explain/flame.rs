//! The differential flame graph: both profiles as one tree of boxes. The width of a box is the cost
//! of a function with all that it calls, in both servers together, so that what only one of them
//! does is seen too. Its colour says which of the two spends more there.

use std::collections::BTreeMap;

use crate::analysis::explain::FlameStack;
use crate::text::number::grouped;

/// Boxes narrower than this share of the whole are left out.
const NARROWEST: f64 = 0.0015;

/// A box of a flame graph.
#[derive(Debug, Clone, PartialEq)]
pub struct FlameBox {
    /// The function.
    pub name: String,
    /// Its cost in both servers, in words.
    pub words: String,
    /// How many functions are on the stack above it.
    pub depth: usize,
    /// Its left end, in per cent of the whole.
    pub left: f64,
    /// Its width, in per cent of the whole.
    pub width: f64,
    /// How much more the server spends there, from −100 (less) to 100, relative to the largest
    /// difference.
    pub shade: i32,
}

#[derive(Default)]
struct Node {
    ns: [f64; 2],
    callees: BTreeMap<String, Node>,
}

impl Node {
    fn add(&mut self, stack: &FlameStack) {
        let mut node = self;
        node.count(stack);
        for frame in &stack.frames {
            node = node.callees.entry(frame.clone()).or_default();
            node.count(stack);
        }
    }

    fn count(&mut self, stack: &FlameStack) {
        self.ns[0] += stack.reference_ns;
        self.ns[1] += stack.server_ns;
    }

    fn both(&self) -> f64 {
        self.ns[0] + self.ns[1]
    }

    fn apart(&self) -> f64 {
        self.ns[1] - self.ns[0]
    }

    /// The largest difference of any function.
    fn largest(&self) -> f64 {
        let own = self.callees.values().map(|node| node.apart().abs().max(node.largest()));
        own.fold(0.0, f64::max)
    }
}

/// How the boxes are drawn.
struct Layout<'a> {
    names: [&'a str; 2],
    whole: f64,
    largest: f64,
    boxes: Vec<FlameBox>,
}

/// The boxes of a flame graph, callers first; none without stacks.
pub(super) fn boxes(names: [&str; 2], stacks: &[FlameStack]) -> Vec<FlameBox> {
    let mut root = Node::default();
    stacks.iter().for_each(|stack| root.add(stack));
    let (whole, largest) = (root.both(), root.largest());
    let mut layout = Layout { names, whole, largest, boxes: Vec::new() };
    if whole > 0.0 {
        layout.place("all", &root, (0, 0.0));
    }
    layout.boxes
}

impl Layout<'_> {
    fn place(&mut self, name: &str, node: &Node, (depth, left): (usize, f64)) {
        let width = node.both() / self.whole;
        if width < NARROWEST {
            return;
        }
        let us = |ns: f64| grouped(ns / 1e3, 2);
        let sign = if node.apart() < 0.0 { "−" } else { "+" };
        let hundredth = |share: f64| (share * 1e4).round() / 1e2;
        let shade = match self.largest > 0.0 {
            true => (node.apart() / self.largest).clamp(-1.0, 1.0),
            false => 0.0,
        };
        self.boxes.push(FlameBox {
            name: name.to_owned(),
            words: format!(
                "{}: {} µs, {}: {} µs ({sign}{})",
                self.names[0],
                us(node.ns[0]),
                self.names[1],
                us(node.ns[1]),
                us(node.apart().abs())
            ),
            depth,
            left: hundredth(left),
            width: hundredth(width),
            // Small differences are seen too.
            shade: (shade.signum() * shade.abs().sqrt() * 100.0).round() as i32,
        });
        let mut from = left;
        for (name, callee) in &node.callees {
            self.place(name, callee, (depth + 1, from));
            from += callee.both() / self.whole;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_are_as_wide_as_all_that_they_call() {
        let stack = |frames: &[&str], reference_ns, server_ns| FlameStack {
            frames: frames.iter().map(|frame| (*frame).to_owned()).collect(),
            reference_ns,
            server_ns,
        };
        let boxes = boxes(
            ["old", "new"],
            &[
                stack(&["main", "parse"], 1_000.0, 1_000.0),
                stack(&["main", "zip"], 0.0, 6_000.0),
                stack(&["main"], 1_000.0, 1_000.0),
                stack(&["tiny"], 5.0, 5.0),
            ],
        );
        let found: Vec<_> =
            boxes.iter().map(|b| (b.name.as_str(), b.depth, b.left, b.width, b.shade)).collect();
        assert_eq!(
            found,
            [
                ("all", 0, 0.0, 100.0, 100),
                ("main", 1, 0.0, 99.9, 100),
                ("parse", 2, 0.0, 19.98, 0),
                ("zip", 2, 19.98, 59.94, 100),
            ]
        );
        assert_eq!(boxes[3].words, "old: 0.00 µs, new: 6.00 µs (+6.00)");
    }
}
