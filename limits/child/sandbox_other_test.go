//go:build !linux

package child_test

// forbidden is for Linux, where children are confined.
func forbidden([]string) {}
