// Package logpb is the wire format of the event log: the messages generated from log.proto. Field numbers
// never change; see the notes there.
package logpb

//go:generate protoc --go_out=. --go_opt=paths=source_relative log.proto
