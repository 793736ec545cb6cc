// Package conformance compares stele with the server whose place it takes: the one of
// k8s.io/apiextensions-apiserver, of the same version as the API that stele serves. It has
// tests only.
//
//   - TestTheSameAnswers sends generated requests to both and compares all that clients can see.
//   - TestUpstreamsCases runs upstream's integration tests, as they stand in its module, against
//     stele.
//
// docs/CONFORMANCE.md has what is compared, what differs, and why.
package conformance
