// Package policy turns a bundle, the CUE that says what one control plane enforces,
// into one immutable Policy.
//
// # Order of use
//
//	source, err := policy.ReadDir("clusters/prod-eu") // files as they are now
//	compiled, diags := policy.Compile(source)         // CUE is evaluated here only
//	bytes, digest := compiled.Form.Encode()           // what the log holds
//	p, err := policy.New(bytes)                       // on every replica
//	p.Authorize(&request)
//
// The [Form] between the halves is plain data. Its digest is the identity of the
// policy; a replica that loads it needs no CUE, so two versions of the program that
// load the same form enforce the same policy. Built-in kinds and roles are part of
// the form: upgrading the program does not change them.
//
// # What stands where
//
// Compiling begins in compile.go: evaluation.go and repair.go get a value out of CUE,
// mistakes.go, grammar.go and nearest.go make sense of what it says, sections.go,
// compile_cel.go and defaults.go read the parts, crosscheck.go, powers.go, compile_null.go
// and secrets.go check what CUE cannot. Enforcing begins in policy.go: access.go and
// conditions.go decide on requests, admission.go and schemarules.go on objects, probes.go
// on whether this program may enforce the form at all; considered.go explains.
//
// # What it promises
//
// A bundle that compiles is enforced whole. Parts of the format that this version
// does not enforce yet are refused, each with its line, but for flow and audit rules,
// which are carried in the form with a warning; nothing is dropped in silence.
//
// All that is wrong is reported at once, each mistake once and where the user made it:
// what CUE finds, and what stele finds in all parts that CUE can still make something
// of. Only what hangs on a part in error waits until that is mended. Diagnostics never
// show what is certainly a secret, and such a secret is itself an error.
//
// A Policy is safe for concurrent use.
package policy
