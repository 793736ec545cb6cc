// Package conformance compares stele with the server of k8s.io/apiextensions-apiserver, of the version whose API stele
// serves. It only has tests.
//
//   - TestTheSameAnswers sends generated requests to both servers and compares all that clients can see.
//   - TestUpstreamsCases runs upstream's integration tests, unchanged, against stele.
//
// docs/CONFORMANCE.md describes what is compared, what differs, and why.
package conformance
