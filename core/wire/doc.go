// Package wire has the forms in which objects travel. Everywhere else an object is JSON; what a
// client wants to read, or has written, in another form is converted here, at the edge: YAML,
// Kubernetes' Protocol Buffers for what has a Go type, and CBOR (KEP-4222), each by
// apimachinery's own serializers. Events of watches are framed as these frame them.
//
// All functions are safe for concurrent use.
package wire
