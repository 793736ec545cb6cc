// Package build has the version of the program, and of the Kubernetes API that it serves.
package build
