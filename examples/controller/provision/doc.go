// Package provision is a program of two controllers. What is peculiar to it are its kinds,
// which a policy bundle declares; all else is what programs for Kubernetes are made of.
package provision
