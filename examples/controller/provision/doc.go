// Package provision has the two controllers of the example. A policy bundle declares their kinds; everything
// else is as in any program for Kubernetes.
package provision
