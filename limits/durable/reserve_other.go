//go:build !linux

package durable

import "errors"

// Reserve returns errors.ErrUnsupported.
func Reserve(string, int64) error { return errors.ErrUnsupported }
