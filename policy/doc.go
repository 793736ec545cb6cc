// Package policy turns a bundle, the CUE that says what one control plane enforces,
// into one immutable Policy.
//
// # Order of use
//
//	source, err := policy.ReadDir("clusters/prod-eu") // files as they are now
//	form, diags := policy.Compile(source)             // CUE is evaluated here only
//	bytes, digest := form.Encode()                    // what the log holds
//	p, err := policy.New(bytes)                       // on every replica
//	p.Authorize(&request)
//
// The [Form] between the halves is plain data. Its digest is the identity of the
// policy; a replica that loads it needs no CUE, so two versions of the program that
// load the same form enforce the same policy. Built-in kinds and roles are part of
// the form: upgrading the program does not change them.
//
// # What it promises
//
// A bundle that compiles is enforced whole. Parts of the format that this version
// does not enforce yet are refused, each with its line; nothing is dropped in
// silence. All errors that CUE finds are reported at once, and once there are none of
// those, all that stele finds.
//
// A Policy is safe for concurrent use.
package policy
