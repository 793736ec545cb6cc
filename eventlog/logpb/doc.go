// Package logpb is the wire format of the event log: the messages generated from log.proto. Field numbers
// never change; see the notes there.
package logpb

//go:generate go run -modfile=../../.ci/tools.mod ../../.ci/protoc -modfile ../../.ci/tools.mod log.proto
