// Package storage runs the tests of Kubernetes' storage contract, k8s.io/apiserver/pkg/storage/testing, on stele's log,
// committer and projections. It only has tests.
//
// docs/CONFORMANCE.md lists the suites that pass, and for each other one the reason why it cannot.
package storage
