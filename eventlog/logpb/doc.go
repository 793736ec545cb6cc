// Package logpb is the wire form of the event log: the Protocol Buffers messages
// of log.proto, generated. Field numbers are for ever; see the notes there.
package logpb

//go:generate protoc --go_out=. --go_opt=paths=source_relative log.proto
