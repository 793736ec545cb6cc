// Package examples holds what new users start from. Each folder runs as its README
// says; the quickstart is also what `stele serve` activates when it is given no policy.
package examples

import "embed"

// Quickstart is the bundle in the folder quickstart.
//
//go:embed all:quickstart
var Quickstart embed.FS
