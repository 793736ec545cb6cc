// Package admission evaluates the admission rules of a policy on writes. [Of] loads the rules of a policy once, and keeps
// them with it. rules.go has the loaded rules, match.go which writes they are about, variables.go what their expressions
// see, and validate.go the validations.
//
// Rules are safe for concurrent use. Attributes belong to one goroutine.
package admission
