// Package installing puts the program on a machine, and takes it away again: `stele install` and `stele uninstall`.
//
// What it installs below a prefix is what releases and packages have, which are made of it with --root.
package installing
