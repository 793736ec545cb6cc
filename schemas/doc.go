// Package schemas defines the form of a schema: plain data that says which fields an object may have,
// which values are valid, and what the defaults are. [Node] is the form of one value, [Kind] that of a
// resource type.
//
// A form can be written as JSON, hashed and stored. A later version of the server runs it without the
// CUE that it was compiled from. The packages below this one make and use forms:
//
//	node, diags := fromcue.Schema(value, locate)  // or kinds.FromCUE for a whole kind
//	p, err := program.New(node)                   // once per policy
//	unknown, changed := p.Prepare(object)         // prune and default, in place
//	errs := p.Validate(object)                    // every violation at once
//
// # Promises
//
//   - S1. A program accepts exactly the values that CUE accepts, and completes them as CUE does. What
//     the compiler does not understand for certain is evaluated by CUE itself, on the smallest part of
//     the object, or rejected with its line.
//   - S2. The form depends on the CUE value only: same source, same bytes.
//   - S3. A program is immutable and safe for concurrent use.
//   - S4. Every error names the line of the policy with the rule.
//
// S1 has exceptions on purpose. Objects arrive as decoded JSON: 12.0 is accepted as an integer, and
// Prepare makes it 12. Integers beyond 64 bits are rejected. A null counts as absent if the field is not
// nullable and has a default. Attributes narrow what CUE says, as in Kubernetes: formats, sets and maps
// in lists, immutable fields. CUE accepts a scalar for a struct of optional fields; a program does not.
//
// # Presence
//
// A required field `f!` must be in the data. An optional field `f?` may be missing; the defaults in it
// then do not apply. A missing regular field `f` gets the value that CUE gives it: a constant or a
// default, a struct with its own defaults, or an empty list. If CUE gives it none, it is required.
package schemas
