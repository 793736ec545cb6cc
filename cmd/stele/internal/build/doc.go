// Package build says which version of the program this is, and of which Kubernetes API.
package build
