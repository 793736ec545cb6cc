// Package schemas turns resource schemas written in CUE into compiled kinds:
// what a field may hold, what it holds when nothing is said, and what clients
// are told about it.
//
// # Order of use
//
//	node, diags := schemas.FromCUE(value, locate)  // or KindFromCUE for a whole kind
//	program, err := schemas.NewProgram(node)       // once per policy
//	unknown, changed := program.Prepare(object)    // prune and default, in place
//	errs := program.Validate(object)               // every violation at once
//
// The form between the two halves, [Node] and [Kind], is plain data: it can be
// written as JSON, hashed, stored, and run again by a binary that does not
// contain the CUE of the day. Only the files named compile*.go import CUE; beside
// them evaluator.go, which evaluates what the form cannot say, and forms.go, which
// takes CUE's own tests of strings.
//
// # What the package promises
//
//   - S1. A value that the program accepts, CUE accepts; a value that CUE
//     accepts, the program accepts, and completes as CUE does. What the compiler
//     cannot prove it understands it leaves to CUE itself, on the smallest part
//     of the object, or refuses, with the line it stands on. Nothing is widened
//     in silence.
//   - S2. The form is a function of the CUE value: same source, same bytes.
//   - S3. A program is immutable. Prepare and Validate may be called from any
//     number of goroutines, each with an object of its own.
//   - S4. Every message names the line of the policy that made it.
//
// There are deliberate exceptions to S1. Objects arrive as decoded JSON: 12.0 is
// accepted where an integer is wanted (Prepare makes it 12); an integer that does
// not fit in 64 bits is refused; and a null counts as absent where the field
// cannot be null and has a default. Attributes narrow what CUE says, as
// Kubernetes does: formats, sets and maps in lists, what is immutable. And a
// struct is a struct: CUE lets a scalar pass for one that has nothing but optional
// fields and conditions.
//
// # How the compiler reads CUE
//
// Meaning is taken from what CUE has evaluated: the normal form of each value,
// the merged fields of each struct, the default of the whole field. Syntax is
// read only to prove that this meaning cannot depend on the data: every
// expression that contributed to a value is visited (compile_survey.go).
// Which fields a struct is closed to is not derived at all but asked: an example
// object that has every known field, and one unknown field per struct, is
// unified with the schema and CUE's answers are compared with what the walk
// concluded (compile_probe.go).
//
// # Parts that depend on each other
//
// Alternatives that are structs become a [Union]: as in CUE, an arm is out if what
// is there contradicts it, and one must be left. A bound that is a sibling
// (max: >min) becomes a [Comparison], fields under an `if` over siblings a
// [Condition]; what they add is seen in variants of the struct in which the
// siblings have values (compile_condition.go). A field that is another scalar of the object,
// the key of a map, or a text made of them has a [Reference], which says how many structs
// outward that is found (compile_reference.go, reference.go); what is sensitive there is so
// here.
//
// Lists whose items differ by their index have a node for each (compile_tuple.go). A call of
// matchN over types of which a value is one at most is a choice (compile_matchn.go).
//
// Everything else that depends on data becomes a [Fallback]: the smallest part of
// the object that holds all it refers to, written out as an expression that needs
// nothing from outside itself (compile_fallback.go). The rest of such a node is
// weakened to what holds whatever the data. CUE forgets things when it writes a
// value out, and judges some values otherwise by themselves than in their place;
// so the expression is compared with the original, and in the end the whole
// schema with what CUE makes of it, for values near valid (compile_agree.go). Where
// they differ, the part around it is left to CUE; a difference that remains is an
// error.
//
// CUE drops attributes where it gives no struct to see. So the attributes of a part that is
// left to CUE are read from the syntax, with all references followed (compile_marks.go): the
// node gets the secrets and the immutable fields that it lacks, and an attribute that nothing
// would enforce is an error (compile_carry.go). The whole schema is held to the same.
//
// CUE can be neither interrupted nor bounded, and overflows the stack on some data:
// whoever checks objects of others has an [Evaluator] do it in another process
// (package workers). What cannot be evaluated is invalid.
//
// # Presence
//
// A field `f!` must be in the data. A field `f?` may be missing, and a default
// inside it is then not applied. A regular field `f` that is missing has the
// value that CUE gives it: a constant or a default is filled in, a struct is
// created with its own defaults, a list becomes empty; if CUE has no value
// either, the field is required.
package schemas
