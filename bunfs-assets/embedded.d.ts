/** Files imported with `with { type: 'file' }` are paths. */
declare module '*.bin' {
  const path: string;
  export default path;
}
declare module '*.pem' {
  const path: string;
  export default path;
}
declare module '*.py' {
  const path: string;
  export default path;
}
declare module '*.md' {
  const path: string;
  export default path;
}
