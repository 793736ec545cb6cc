// Package usage has what all commands of the program share: how they check flags and arguments, which errors are
// mistakes on the command line, and which exit code an error has.
package usage
