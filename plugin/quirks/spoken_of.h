// Of which database RocksDB speaks on this thread.
//
// RocksDB shows a file system the paths of every column family (RegisterDbPaths) and the options
// of every database that makes a log (OptimizeForLogWrite), also those of databases that are none
// of ours, and does not say which database it means. But it makes these calls on the thread that is
// opening the database: after it has locked it, or, to read only, after it has opened its MANIFEST.
// For a column family that is added it makes them on the thread that has just written the MANIFEST.
#pragma once

namespace hyperloop::plugin {

class BoundDirectory;

namespace spoken_of {

// This thread has locked and bound the directory, and is opening its database.
void Opening(const BoundDirectory& bound);
// The database has its log now: its options and families are known.
void Opened();
// This thread writes to the MANIFEST of the directory.
void WritesManifest(const BoundDirectory& bound);
// This thread opens a MANIFEST to read it. Null: it is in no bound directory.
void ReadsManifest(const BoundDirectory* bound);

// This thread has closed, or given up opening, what it spoke of, or writes to the MANIFEST of a
// database that is in no bound directory.
void Nothing();

// Whether RocksDB speaks of the database in this directory, which may be null: that is false then.
bool Is(const BoundDirectory* bound);
// Whether this thread is opening it.
bool IsOpening(const BoundDirectory* bound);

}  // namespace spoken_of
}  // namespace hyperloop::plugin
