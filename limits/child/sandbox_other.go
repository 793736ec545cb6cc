//go:build !linux

package child

import "errors"

// ForgoPrivileges has no effect on this system.
func ForgoPrivileges() {}

// Unconfined returns why children can open files and start programs.
func Unconfined() error { return errors.New("this system has no Landlock") }

// Sandbox has no effect on this system.
func Sandbox(...string) error { return nil }
