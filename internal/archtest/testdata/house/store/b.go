// Package store is a test.
package store
