// Sheets of styles are imported for their effect.
declare module "*.css";
